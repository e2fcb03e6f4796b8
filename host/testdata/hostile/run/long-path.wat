;; Gives a path of 30 KB.
;; want: AccessError: longer than
(func $bad (memory.fill (i32.const 0) (i32.const 97) (i32.const 30000)) (drop (call $get (i32.const 1) (i32.const 0) (i32.const 30000))))
