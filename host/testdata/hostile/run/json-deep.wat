;; Sets JSON of 30,000 lists inside one another.
;; want: AccessError LimitError: JSON|nesting
(data (i32.const 0) "spec.x")
(func $bad
  (memory.fill (i32.const 16) (i32.const 91) (i32.const 15000))
  (memory.fill (i32.const 15016) (i32.const 93) (i32.const 15000))
  (call $set_json (i32.const 1) (i32.const 0) (i32.const 6) (i32.const 16) (i32.const 30000)))
