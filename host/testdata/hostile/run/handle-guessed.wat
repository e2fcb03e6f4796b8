;; Guesses a handle of the first calls.
;; want: AccessError: handle
(data (i32.const 0) "spec")
(func $bad (drop (call $get (i32.const 0x00100003) (i32.const 0) (i32.const 4))))
