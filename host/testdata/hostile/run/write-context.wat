;; Writes to the context.
;; want: AccessError: read-only
(data (i32.const 0) "spec")
(func $bad (call $set_string (i32.const 2) (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 4)))
