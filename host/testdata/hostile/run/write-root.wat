;; Replaces the whole object.
;; want: GuardError: kind|metadata|apiVersion
(data (i32.const 0) "{}")
(func $bad (call $set_json (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2)))
