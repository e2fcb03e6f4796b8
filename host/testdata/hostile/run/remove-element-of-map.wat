;; Removes an element of a map.
;; want: AccessError: map
(func $bad (call $remove_elem (i32.const 1) (i32.const 0)))
