;; Announces 200 million vectors to write.
;; want: OutOfFuelError LimitError AccessError TrapError: used up|output|memory|outside
(func $bad (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 200000000) (i32.const 8))) unreachable)
