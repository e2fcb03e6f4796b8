;; Forges an ownership label by setting all labels as JSON.
;; want: GuardError: labels
(data (i32.const 0) "metadata.labels")
(data (i32.const 32) "{\22offloading.liqo.io/origin\22:\22somebody\22}")
(func $bad (call $set_json (i32.const 1) (i32.const 0) (i32.const 15) (i32.const 32) (i32.const 40)))
