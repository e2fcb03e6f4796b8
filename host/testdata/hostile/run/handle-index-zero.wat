;; Puts a generation to a root.
;; want: AccessError: handle
(data (i32.const 0) "spec")
(func $bad (drop (call $get (i32.const 0x00100001) (i32.const 0) (i32.const 4))))
