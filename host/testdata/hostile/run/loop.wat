;; Never ends.
;; want: OutOfFuelError: used up
(func $bad (loop $l (br $l)))
