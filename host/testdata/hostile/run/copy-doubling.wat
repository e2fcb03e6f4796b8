;; Copies the object into itself, twice as large each time: a billion laughs.
;; want: LimitError OutOfFuelError: output|handles|loop|nesting
(data (i32.const 0) "spec.copy")
(func $bad (loop $l
  (call $copy (i32.const 1) (i32.const 0) (i32.const 9) (i32.const 1))
  (br $l)))
