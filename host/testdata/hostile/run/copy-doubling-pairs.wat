;; Makes b of two a, c of two b, and so on, each shared and not copied.
;; want: LimitError OutOfFuelError: output|handles|loop|nesting
(data (i32.const 0) "spec.a.l")
(data (i32.const 16) "spec.a.r")
(data (i32.const 32) "spec.a")
(data (i32.const 48) "spec.a")
(func $bad (local $h i32)
  (drop (call $set_map (i32.const 1) (i32.const 32) (i32.const 6)))
  (loop $l
    (local.set $h (call $get (i32.const 1) (i32.const 32) (i32.const 6)))
    (i32.store8 (i32.const 5) (i32.add (i32.load8_u (i32.const 5)) (i32.const 1)))
    (i32.store8 (i32.const 21) (i32.add (i32.load8_u (i32.const 21)) (i32.const 1)))
    (i32.store8 (i32.const 37) (i32.add (i32.load8_u (i32.const 37)) (i32.const 1)))
    (call $copy (i32.const 1) (i32.const 0) (i32.const 8) (local.get $h))
    (call $copy (i32.const 1) (i32.const 16) (i32.const 8) (local.get $h))
    (br_if $l (i32.lt_u (i32.load8_u (i32.const 37)) (i32.const 125)))))
