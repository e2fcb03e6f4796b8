;; Warns for ever.
;; want: OutOfFuelError LimitError: used up|output
(data (i32.const 0) "watch out")
(func $bad (loop $l (call $warn (i32.const 0) (i32.const 9)) (br $l)))
