;; Gives a path of -1 bytes.
;; want: AccessError: memory
(data (i32.const 0) "spec.x")
(data (i32.const 8) "kind")
(data (i32.const 16) "metadata")
(func $bad (drop (call $get (i32.const 1) (i32.const 0) (i32.const -1))))
