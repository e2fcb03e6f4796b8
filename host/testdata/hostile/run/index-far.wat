;; Sets the ten millionth element of a list.
;; want: AccessError: list
(data (i32.const 0) "spec.ports.9999999")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 18) (i32.const 0) (i32.const 4)))
