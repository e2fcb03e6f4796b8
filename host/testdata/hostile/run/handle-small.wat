;; Uses a handle of no call.
;; want: AccessError: handle
(data (i32.const 0) "spec")
(func $bad (drop (call $get (i32.const 4) (i32.const 0) (i32.const 4))))
