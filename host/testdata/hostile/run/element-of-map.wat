;; Wants an element of a map.
;; want: AccessError: map
(func $bad (drop (call $elem (i32.const 1) (i32.const 0))))
