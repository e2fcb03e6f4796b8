;; Divides by zero.
;; want: TrapError: divide
(func $bad (drop (i32.div_u (i32.const 1) (i32.const 0))))
