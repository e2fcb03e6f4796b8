;; Wants a map as a string.
;; want: AccessError: map
(data (i32.const 0) "spec")
(func $bad (drop (call $string (i32.const 1) (i32.const 0) (i32.const 4) (i32.const 64) (i32.const 100))))
