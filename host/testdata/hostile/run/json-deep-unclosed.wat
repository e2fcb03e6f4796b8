;; Sets JSON that opens 30,000 maps and closes none.
;; want: AccessError LimitError: JSON|nesting
(data (i32.const 0) "spec.x")
(func $bad (local $n i32)
  (loop $l
    (i32.store (i32.add (i32.const 16) (local.get $n)) (i32.const 0x22612222))
    (i32.store (i32.add (i32.const 16) (local.get $n)) (i32.const 0x2261227b))
    (i32.store8 (i32.add (i32.const 20) (local.get $n)) (i32.const 58))
    (local.set $n (i32.add (local.get $n) (i32.const 5)))
    (br_if $l (i32.lt_u (local.get $n) (i32.const 30000))))
  (call $set_json (i32.const 1) (i32.const 0) (i32.const 6) (i32.const 16) (i32.const 30000)))
