;; Sets a number that no machine has.
;; want: AccessError: JSON
(data (i32.const 0) "spec.x")
(data (i32.const 16) "1e999")
(func $bad (call $set_json (i32.const 1) (i32.const 0) (i32.const 6) (i32.const 16) (i32.const 5)))
