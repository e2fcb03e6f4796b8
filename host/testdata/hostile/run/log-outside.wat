;; Logs what is not its memory.
;; want: AccessError: memory
(data (i32.const 0) "spec.x")
(data (i32.const 8) "kind")
(data (i32.const 16) "metadata")
(func $bad (call $log (i32.const 1) (i32.const 65000) (i32.const 10000)))
