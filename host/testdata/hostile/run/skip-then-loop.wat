;; Skips the object and goes on for ever.
;; want: OutOfFuelError: used up
(func $bad (call $skip (i32.const 0) (i32.const 0)) (loop $l (br $l)))
