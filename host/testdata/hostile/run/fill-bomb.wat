;; Fills all of its memory again and again with single instructions.
;; want: OutOfFuelError: used up
(func $bad (loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 32768)) (br $l)))
