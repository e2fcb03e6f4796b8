;; Moves the object to another namespace.
;; want: GuardError: metadata.namespace
(data (i32.const 0) "metadata.namespace")
(data (i32.const 128) "kube-system")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 18) (i32.const 128) (i32.const 11)))
