;; Sets a field of a string.
;; want: AccessError: kind.x
(data (i32.const 0) "kind.x")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 6) (i32.const 0) (i32.const 4)))
