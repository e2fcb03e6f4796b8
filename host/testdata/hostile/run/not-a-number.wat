;; Sets NaN, which JSON does not have.
;; want: AccessError: NaN
(data (i32.const 0) "spec.x")
(func $bad (call $set_float (i32.const 1) (i32.const 0) (i32.const 6) (f64.div (f64.const 0) (f64.const 0))))
