;; Writes nothing to standard output, for ever.
;; want: OutOfFuelError LimitError: used up|output
(func $bad (loop $l (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 8))) (br $l)))
