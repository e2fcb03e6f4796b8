;; Turns on the host network with something that is not a boolean.
;; want: GuardError: hostNetwork
;; kind: Pod
(data (i32.const 0) "spec.hostNetwork")
(data (i32.const 32) "true")
(func $bad (call $set_string (i32.const 1) (i32.const 0) (i32.const 16) (i32.const 32) (i32.const 4)))
