;; Sets a value below 500 maps that are not there: odd, but an object like any other.
;; want: ok
(func $bad (local $n i32)
  (loop $l
    (i32.store16 (local.get $n) (i32.const 0x2e61))
    (local.set $n (i32.add (local.get $n) (i32.const 2)))
    (br_if $l (i32.lt_u (local.get $n) (i32.const 1000))))
  (call $set_string (i32.const 1) (i32.const 0) (i32.const 999) (i32.const 0) (i32.const 4)))
