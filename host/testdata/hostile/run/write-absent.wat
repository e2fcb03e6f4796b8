;; Writes to what is not there.
;; want: AccessError: nothing
(data (i32.const 0) "spec")
(func $bad (call $set_string (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 4)))
