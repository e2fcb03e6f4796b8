;; Logs for ever.
;; want: OutOfFuelError LimitError: used up|output
(data (i32.const 0) "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
(func $bad (loop $l (call $log (i32.const 3) (i32.const 0) (i32.const 64)) (br $l)))
