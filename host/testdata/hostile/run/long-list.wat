;; Appends to a list without end.
;; want: LimitError OutOfFuelError: handles|output|loop
(data (i32.const 0) "spec.list.-")
(func $bad (loop $l
  (call $set_string (i32.const 1) (i32.const 0) (i32.const 11) (i32.const 0) (i32.const 11))
  (br $l)))
