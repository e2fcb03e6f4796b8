;; Renames the object.
;; want: GuardError: metadata.name
(data (i32.const 0) "metadata.name")
(data (i32.const 128) "x")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 13) (i32.const 128) (i32.const 1)))
