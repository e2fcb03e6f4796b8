;; Gives a path whose end wraps around to the start of memory.
;; want: AccessError: memory
(data (i32.const 0) "spec.x")
(data (i32.const 8) "kind")
(data (i32.const 16) "metadata")
(func $bad (drop (call $get (i32.const 1) (i32.const 0xfffffff0) (i32.const 0x20))))
