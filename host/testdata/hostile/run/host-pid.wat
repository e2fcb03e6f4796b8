;; Turns on hostPID for a pod.
;; want: GuardError: hostPID
;; kind: Pod
(data (i32.const 0) "spec.hostPID")
(func $bad (call $set_bool (i32.const 1) (i32.const 0) (i32.const 12) (i32.const 1)))
