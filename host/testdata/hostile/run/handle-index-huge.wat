;; Guesses a handle beyond all places.
;; want: AccessError: handle
(data (i32.const 0) "spec")
(func $bad (drop (call $get (i32.const 0x001fffff) (i32.const 0) (i32.const 4))))
