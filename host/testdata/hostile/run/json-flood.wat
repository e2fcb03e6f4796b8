;; Sets a large JSON text for ever.
;; want: OutOfFuelError LimitError: used up|output
(data (i32.const 0) "spec.x")
(func $bad
  (memory.fill (i32.const 16) (i32.const 32) (i32.const 30000))
  (i32.store8 (i32.const 16) (i32.const 49))
  (loop $l
    (i32.store8 (i32.const 16) (i32.xor (i32.load8_u (i32.const 16)) (i32.const 3)))
    (call $set_json (i32.const 1) (i32.const 0) (i32.const 6) (i32.const 16) (i32.const 30000))
    (br $l)))
