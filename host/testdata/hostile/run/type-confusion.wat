;; Calls a function as if it had another type.
;; want: TrapError: type
(table 1 funcref)
(elem (i32.const 0) $other)
(func $other (param i64))
(func $bad (call_indirect (i32.const 0)))
