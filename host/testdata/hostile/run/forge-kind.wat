;; Makes the object one of another kind.
;; want: GuardError: kind
(data (i32.const 0) "kind")
(data (i32.const 128) "ClusterRoleBinding")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 4) (i32.const 128) (i32.const 18)))
