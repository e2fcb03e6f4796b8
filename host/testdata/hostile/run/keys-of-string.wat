;; Wants the keys of a string.
;; want: AccessError: string
(data (i32.const 0) "kind")
(func $bad (drop (call $keys (i32.const 1) (i32.const 0) (i32.const 4) (i32.const 64) (i32.const 100))))
