;; Sets a string that is not UTF-8.
;; want: AccessError: UTF-8
(data (i32.const 0) "spec.x")
(data (i32.const 16) "\c3\28\ff")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 6) (i32.const 16) (i32.const 3)))
