;; Has the host encode the object for ever.
;; want: OutOfFuelError: used up
(func $bad (loop $l (drop (call $json (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))) (br $l)))
