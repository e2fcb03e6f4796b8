;; Sets through a wildcard.
;; want: AccessError: spec
(data (i32.const 0) "spec.*.x")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 8) (i32.const 0) (i32.const 4)))
