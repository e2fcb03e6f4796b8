;; Turns on hostNetwork for a pod.
;; want: GuardError: hostNetwork
;; kind: Pod
(data (i32.const 0) "spec.hostNetwork")
(func $bad (call $set_bool (i32.const 1) (i32.const 0) (i32.const 16) (i32.const 1)))
