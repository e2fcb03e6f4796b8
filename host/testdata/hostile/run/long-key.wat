;; Sets a field whose key has 30 KB.
;; want: AccessError: longer than
(func $bad (memory.fill (i32.const 0) (i32.const 97) (i32.const 30000)) (call $set_string (i32.const 1) (i32.const 0) (i32.const 30000) (i32.const 0) (i32.const 4)))
