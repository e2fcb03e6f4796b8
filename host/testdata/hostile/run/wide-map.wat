;; Adds keys to a map without end.
;; want: LimitError OutOfFuelError: loop|handles|output
(data (i32.const 0) "spec.k0000")
(func $bad (local $n i32)
  (loop $l
    (local.set $n (i32.add (local.get $n) (i32.const 1)))
    ;; four digits of base 64, from '0' on
    (i32.store8 (i32.const 6) (i32.add (i32.const 48) (i32.and (local.get $n) (i32.const 7))))
    (i32.store8 (i32.const 7) (i32.add (i32.const 48) (i32.and (i32.shr_u (local.get $n) (i32.const 3)) (i32.const 7))))
    (i32.store8 (i32.const 8) (i32.add (i32.const 48) (i32.and (i32.shr_u (local.get $n) (i32.const 6)) (i32.const 7))))
    (i32.store8 (i32.const 9) (i32.add (i32.const 48) (i32.and (i32.shr_u (local.get $n) (i32.const 9)) (i32.const 7))))
    (drop (call $set_map (i32.const 1) (i32.const 0) (i32.const 10)))
    (br $l)))
