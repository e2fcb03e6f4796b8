;; Logs nothing, for ever.
;; want: OutOfFuelError LimitError: used up|output
(func $bad (loop $l (call $log (i32.const 3) (i32.const 0) (i32.const 0)) (br $l)))
