;; Wants a string written behind its memory.
;; want: AccessError: memory
(data (i32.const 0) "spec.x")
(data (i32.const 8) "kind")
(data (i32.const 16) "metadata")
(func $bad (drop (call $string (i32.const 1) (i32.const 8) (i32.const 4) (i32.const 0xffff0000) (i32.const 100))))
