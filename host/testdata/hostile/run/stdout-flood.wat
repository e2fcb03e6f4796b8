;; Writes to standard output for ever.
;; want: OutOfFuelError LimitError: used up|output
(data (i32.const 0) "\10\00\00\00\40\00\00\00")
(data (i32.const 16) "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n")
(func $bad (loop $l (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))) (br $l)))
